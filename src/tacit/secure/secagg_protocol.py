"""Secure aggregation: the coordinator learns the survivors' sum and no single vector, though parties may drop out.

After Bonawitz et al. 2017 ("Practical secure aggregation for privacy-preserving machine learning", CCS) on the graph of
Bell et al. 2020 (CCS). One sum, in five exchanges:

    advertise   each party sends two fresh public keys; the coordinator hands each its neighbours'        Opener.keys
    share       each sends its neighbours sealed shares of its two secrets: the seed of its own mask,
                and the private key from which the masks that it has in common with others follow         Opener.mail
    mask        each sends vector + own mask ± common masks, mod 2^bits: common masks cancel in the sum Opener.survivors
    confirm     signed shapes only: each signs the list of those whose masked vector arrived
    unmask      each gives its own seed and, of each neighbour, one share: of the seed if that one
                survived, of the private key if it dropped out                                            Opener.open

A party that drops out before it shared is masked with by nobody; one that drops out later has its common masks
recovered from shares; one that drops out after its masked vector arrived is part of the sum. "Extras" are further
secrets that are shared along and revealed by index, such as seeds of noise that turned out to be too much.

Formal guarantee
----------------
*What.* With at most `shape.colluding` colluders, the joint view of them and the coordinator of one sum can be simulated
from their own inputs, the revealed extras, and the sum modulo 2^bits of the vectors of the honest ones among at least
`shape.fewest` survivors. So they learn that sum and nothing else.

*Against whom.* A semi-honest coordinator that sees everything and follows the protocol, with c semi-honest parties.
With a signed shape and identities also one that lies: about keys, mail, who dropped out, to each party differently.

*Why*, in outline (Bonawitz et al., Theorem 6.3 for semi-honest coordinators, and their section on active adversaries;
Bell et al. add the graph). Replace, one after the other, by hybrids: keys of honest pairs by uniform ones
(Diffie–Hellman, HKDF); sealed shares among honest parties by shares of 0 (AES-256-GCM); shares, of which colluders hold
fewer than t, by those of 0 for the one secret of each honest party that is not given away (Shamir); its masks by
uniform words (AES-CTR). An honest party that dropped out keeps its own mask, so that its vector, should it arrive late,
is uniform. Honest survivors keep the masks that they have in common with each other; these form a connected graph
(`graph`), so the vectors are uniform but for their sum (Bonawitz et al., Lemma 6.1, whose complete graph need only be
connected).

*Where the coordinator lies*, honest parties answer for one list L only, which t parties signed, together with the
keys that all on it advertised, so that no signature serves another sum: there is one such list, since 2t > n + c. Say
that it could open the sum of A, some but not all of the honest parties on L. If one of A answers, it has masked with
everybody on L, since it refuses otherwise; one of those is honest and not in A, and their mask stays unknown, since
neither's key is given. So none of A answers, and their seeds come from at least t − c honest parties on L outside A:
|A| ≤ H − (t − c), with H honest ones on L. Each of A had genuine mail of t − 1 others, at least t − 1 − c of them
honest, all of those in A or not on L: t − 1 − c ≤ |A| − 1 + (n − c) − H. Together 2t ≤ n + c, which is not so.

*Not promised.* A party that lies can spoil the sum, or make it void: the sum carries no proof that vectors were in
range. Anybody can deny service. Who takes part, who drops out and when are seen. Without identities, whoever controls
the network between a party and the coordinator can stand in for either; use an authenticated transport.
"""

from tacit.secure.secagg_messages import VoidRound
from tacit.secure.secagg_party import Sealer
from tacit.secure.secagg_server import Opened, Opener

__all__ = ["Sealer", "Opener", "Opened", "VoidRound"]
