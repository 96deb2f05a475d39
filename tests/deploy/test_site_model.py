"""What a site has after a run opens as a model, at home and for its owner alone."""

import pytest
from one_site import BIAS, CHAIN, Sites, offer_of, run_file

from tacit.model import Model


@pytest.mark.parametrize("method", [BIAS, CHAIN], ids=["bias", "sgdmf"])
def test_a_sites_folder_opens_as_a_model(tmp_path, method):
    sites = Sites(tmp_path, offer_of(run_file(method=method))).begin()
    shared = sites.conduct()
    latest = {"biases": shared.form.base} if method is BIAS else {"items": shared.item_factors}
    sites.parts["party-1"].save(latest)
    home = sites.homes["party-1"].folder
    model = Model.load(home)
    assert model.item_ids == shared.item_ids
    assert model.method == method["name"]
    assert model.stamp.startswith("(4.00, 1e-06)-DP")
    assert len(model.recommend({shared.item_ids[0].item(): 5.0}, n=3)) == 3
    assert {path.stat().st_mode & 0o777 for path in (home / "home" / "model").iterdir()} == {0o600}
    sites.leave()
