"""Write down what all runs give now: python -m tests.goldens [words of the cases to write anew …]"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.goldens.cases import cases
from tests.goldens.observed import arithmetic, observed

KEPT = Path(__file__).with_name("goldens.json")

if __name__ == "__main__":
    words, kept = sys.argv[1:], json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name, file in cases().items():
        if not words or any(word in name for word in words):
            kept[name] = observed(file)
    kept = {"arithmetic": arithmetic(), **{name: kept[name] for name in cases()}}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    KEPT.write_text(text + "\n", encoding="utf-8")
