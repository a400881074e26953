"""Tables from end to end: read a file, choose a target, fit and score a model, write a report, predict new rows."""

from inducing.extras import require

require("pandas")
