package daemon

import (
	"time"
)

// waitTimeout is how long something may take that happens at once on an idle machine.
const waitTimeout = time.Minute
