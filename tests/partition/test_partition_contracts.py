"""Every way to divide keeps the contract."""

from tacit.partition import partition
from tacit.testing.partition_contract import PartitionContract


class TestByUser(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=7, by="user", seed=seed)


class TestByUserWithSkew(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=7, by="user", size_skew=1.0, taste_skew=0.7, seed=seed)


class TestByItem(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=5, by="item", seed=seed)


class TestByItemWithSkew(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=5, by="item", size_skew=0.5, taste_skew=0.7, seed=seed)


class TestOneCohort(PartitionContract):
    seeded = False

    def make(self, ratings, seed):
        return partition(ratings, by="device", seed=seed)


class TestCohorts(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=3, by="device", seed=seed)


class TestGroups(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, by="group", seed=seed)


class TestZip(PartitionContract):
    seeded = False

    def make(self, ratings, seed):
        return partition(ratings, by="zip1", seed=seed)


class TestMergedOccupations(PartitionContract):
    seeded = False

    def make(self, ratings, seed):
        return partition(ratings, into=4, by="occupation", seed=seed)


class TestGenre(PartitionContract):
    seeded = False

    def make(self, ratings, seed):
        return partition(ratings, by="genre", seed=seed)


class TestOneUserPerSilo(PartitionContract):
    def make(self, ratings, seed):
        return partition(ratings, into=ratings.n_users, by="user", seed=seed)
