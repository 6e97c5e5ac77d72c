"""`Store`: the parts of a store, by noun, over one database."""

from collections.abc import Callable
from typing import Literal

from pramana import settings
from pramana.store.blobs import Blobs, Recordings
from pramana.store.engine import Changes, Database
from pramana.store.history import History
from pramana.store.preferences import PreferencesStore, SetPrices
from pramana.store.providers import Providers
from pramana.store.queue import Queue
from pramana.store.results import Results
from pramana.store.runs import Cases, Runs
from pramana.store.scenarios import Scenarios
from pramana.store.scoring import Scorings
from pramana.store.submissions import Submissions
from pramana.store.suites import Suites
from pramana.store.tokens import Tokens


class Store:
    """Everything that is kept. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.runs = Runs(database)
        self.queue = Queue(database)
        self.cases = Cases(database)
        self.results = Results(database)
        self.scorings = Scorings(database)
        self.history = History(database)
        self.scenarios = Scenarios(database)
        self.suites = Suites(database)
        self.providers = Providers(database)
        self.prices = SetPrices(database)
        self.tokens = Tokens(database)
        self.decisions = PreferencesStore(database)
        self.submissions = Submissions(database)
        self.changes = Changes(database)
        self.blobs = Blobs(settings.data_folder() / "blobs")
        """Recordings and logs: files, wherever the rows are."""
        self.sounds = Recordings(settings.data_folder() / "audio", self.blobs)

    @property
    def kind(self) -> Literal["sqlite", "postgresql"]:
        return "sqlite" if self._database.is_sqlite else "postgresql"

    def on_commit(self, callback: Callable[[], None]) -> None:
        """Have somebody told, in whichever thread it happens, whenever this process has written something."""
        self._database.on_commit.append(callback)

    def release_connections(self) -> None:
        """Close the connections that nobody uses, with the memory of their caches and statements."""
        self._database.release_connections()

    def close(self) -> None:
        self._database.close()
