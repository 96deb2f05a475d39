"""Messages that are larger than a frame travel between processes, both ways."""

from services import Federation

RUN = """
seed = 7
[public]
scale = [1, 5]
users = 90
catalogue = "items.csv"
[method]
name = "sgdmf"
factors = 64
rounds = 2
local_steps = 1
sampling = 1.0
[evaluate]
ranking = false
"""
ITEMS = 20_000


def test_factors_of_five_megabytes_are_learned_by_sites(tmp_path):
    federation = Federation(tmp_path, RUN, parties=2)
    listed = (tmp_path / "items.csv").read_text().splitlines()
    more = range(10**6, 10**6 + ITEMS)
    (tmp_path / "items.csv").write_text("\n".join([*listed, *map(str, more)]) + "\n")
    try:
        up = federation.up()
        sites = [federation.join(name, "--non-private") for name in federation.names]
        assert up.wait() == 0, up.err
        assert [site.wait() for site in sites] == [0, 0]
        assert up.summary["bytes_up"] > 2 * 2 * ITEMS * 64 * 4
    finally:
        federation.stop()
