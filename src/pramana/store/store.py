"""The `Store`: all parts of a store, by noun, on one database."""

from collections.abc import Callable
from typing import Literal

from pramana import settings
from pramana.store.alerts import Alerts
from pramana.store.blobs import Blobs, UploadedRecordings
from pramana.store.contributors import ContributedResults
from pramana.store.engine import Changes, Database
from pramana.store.history import History
from pramana.store.labels import Labels
from pramana.store.preferences import CustomPrices, PreferencesStore
from pramana.store.providers import Providers
from pramana.store.queue import RunQueue
from pramana.store.rejudgements import Rejudgements
from pramana.store.results import Results
from pramana.store.runs import Cases, Runs
from pramana.store.scenarios import Scenarios
from pramana.store.scoring import Scorings
from pramana.store.submissions import Submissions
from pramana.store.suites import Suites
from pramana.store.tokens import Tokens
from pramana.store.watches import Watches


class Store:
    """All stored data. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.runs = Runs(database)
        self.queue = RunQueue(database)
        self.cases = Cases(database)
        self.results = Results(database)
        self.scorings = Scorings(database)
        self.labels = Labels(database)
        self.rejudgements = Rejudgements(database)
        self.history = History(database)
        self.scenarios = Scenarios(database)
        self.suites = Suites(database)
        self.providers = Providers(database)
        self.prices = CustomPrices(database)
        self.tokens = Tokens(database)
        self.preferences = PreferencesStore(database)
        self.submissions = Submissions(database)
        self.contributed_results = ContributedResults(database)
        self.watches = Watches(database)
        self.alerts = Alerts(database)
        self.changes = Changes(database)
        self.blobs = Blobs(settings.data_folder() / "blobs")
        """Recordings and logs: always files, even with PostgreSQL."""
        self.recordings = UploadedRecordings(settings.data_folder() / "audio", self.blobs)

    @property
    def database_kind(self) -> Literal["sqlite", "postgresql"]:
        return "sqlite" if self._database.is_sqlite else "postgresql"

    def on_commit(self, callback: Callable[[], None]) -> None:
        """Register a callback to run after each commit of this process, in the thread that committed."""
        self._database.on_commit.append(callback)

    def release_connections(self) -> None:
        """Close idle connections, and free their caches and prepared statements."""
        self._database.release_connections()

    def close(self) -> None:
        self._database.close()
