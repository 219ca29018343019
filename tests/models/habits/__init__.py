"""The habits of servers, a row each. Sources are threads on GitHub unless said; `known` is known from several."""

from servers import Habit

from habits.common import BOTH
from habits.endings import ENDINGS
from habits.faults import FAULTS
from habits.odd import ODD
from habits.other_apis import OTHER_APIS
from habits.returned import RETURNED
from habits.unsent import UNSENT

__all__ = ["ENDINGS", "HABITS"]

PLAIN = Habit("plain", "OpenAI's reference", **BOTH)
HABITS = [PLAIN, *RETURNED, *UNSENT, *ODD, *FAULTS, *OTHER_APIS]
