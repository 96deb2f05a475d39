"""What a run leaves for people: the privacy card, the one-file report, and runs side by side."""

from tacit.report.card import privacy_card
from tacit.report.comparison import compare_report, write_comparison
from tacit.report.folder import RunRecord
from tacit.report.run_page import report, write_card, write_report

__all__ = [
    "RunRecord",
    "privacy_card",
    "report",
    "write_card",
    "write_report",
    "compare_report",
    "write_comparison",
]
