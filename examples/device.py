"""A device takes part in a run through the federation's proxy, and prints recommendations for its owner.

python examples/device.py party-1.kit --data mine.csv --max-epsilon 8

`mine.csv` has the columns user, item and rating, with one person's ratings. They stay in it, and the user's vector in
the folder `--state`; what left is in the ledger there: tacit ledger show device-party-1/ledger
"""

import argparse
import sys
from pathlib import Path

from tacit.deploy.device import Device
from tacit.deploy.kit import Kit
from tacit.deploy.policy import Policy
from tacit.deploy.site_data import Source
from tacit.errors import TacitError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--data", required=True, help="one person's ratings: a CSV or Parquet file")
    parser.add_argument("--max-epsilon", type=float, required=True, help="the budget of this device, for good")
    parser.add_argument("--feedback", default="explicit", choices=("explicit", "implicit"))
    parser.add_argument("--state", type=Path, help="the folder of the ledger and the model")
    parser.add_argument("--wait", type=float, default=3600.0, help="seconds for which the coordinator may be away")
    parser.add_argument("-n", type=int, default=10, help="how many recommendations")
    chosen = parser.parse_args()
    try:
        kit = Kit.read(chosen.kit)
        device = Device(
            kit,
            Source(chosen.data, feedback=chosen.feedback),
            Policy(max_epsilon=chosen.max_epsilon),
            chosen.state or Path(f"device-{kit.name}"),
        )
        ended = device.take_part(chosen.wait, report=lambda sentence: print(sentence, file=sys.stderr))
        print(f"run {ended['run']}, digest {ended['digest']}")
        for item, score in device.recommend(chosen.n):
            print(f"{item}\t{score:.3f}")
    except TacitError as error:
        print(f"device: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
