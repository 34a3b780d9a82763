package daemon

import (
	"time"
)

// waitTimeout is the timeout of operations that are immediate on an idle machine.
const waitTimeout = time.Minute
