"""Every way to divide fulfils the contract."""

from tacit.partition import partition
from tacit.testing.partition_contract import PartitionContract


def contract(name, seeded=True, **options):
    def make(self, ratings, seed):
        return partition(ratings, seed=seed, **options)

    return type(name, (PartitionContract,), {"make": make, "seeded": seeded})


TestByUser = contract("TestByUser", into=7, by="user")
TestByUserWithSkew = contract("TestByUserWithSkew", into=7, by="user", size_skew=1.0, taste_skew=0.7)
TestByItem = contract("TestByItem", into=5, by="item")
TestByItemWithSkew = contract("TestByItemWithSkew", into=5, by="item", size_skew=0.5, taste_skew=0.7)
TestOneCohort = contract("TestOneCohort", seeded=False, by="device")
TestCohorts = contract("TestCohorts", into=3, by="device")
TestGroups = contract("TestGroups", by="group")
TestZip = contract("TestZip", seeded=False, by="zip1")
TestMergedOccupations = contract("TestMergedOccupations", seeded=False, into=4, by="occupation")
TestGenre = contract("TestGenre", seeded=False, by="genre")


class TestOneUserPerSilo(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=ratings.n_users, by="user", seed=seed)
