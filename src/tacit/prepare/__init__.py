"""One run before its first message: resolve the parameters, plan the noise, bind the terms, build both sides."""

from tacit.prepare.prepared import Keys, PreparedRun, Record
from tacit.prepare.simulate import Trained, train
from tacit.prepare.simulated_ledgers import Records

__all__ = ["Keys", "PreparedRun", "Record", "Records", "Trained", "train"]
