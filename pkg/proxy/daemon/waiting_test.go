package daemon

import (
	"time"
)

// patience is how long something may take that happens at once on an idle machine.
const patience = time.Minute
