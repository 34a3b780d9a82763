package publish

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// told remembers which waiting keys were logged. Each key is logged once, but any user may name a new one every second:
// so there is one line per refill interval of the budget of all changes, and keys that came meanwhile are in the next
// line.
type told struct {
	at   time.Time
	keys map[policy.Key]bool
}

// toldKeys is how many keys a line names.
const toldKeys = 10

func (t *told) tell(log *slog.Logger, now time.Time, waits []deferral) {
	if len(waits) == 0 {
		if t.keys != nil {
			log.Info("all topology keys in use are published")
		}
		t.keys = nil
		return
	}
	if !t.at.IsZero() && now.Sub(t.at) < inAll.more {
		return
	}
	before := t.keys
	t.keys = make(map[policy.Key]bool, len(waits))
	var news []string
	for _, one := range waits {
		t.keys[one.key] = true
		if !before[one.key] && len(news) < toldKeys {
			news = append(news, one.String())
		}
	}
	if len(news) > 0 {
		t.at = now
		log.Warn("some topology keys in use are not published yet", "count", len(waits), "new", news)
	}
}

// String says which key waits, why, and until when.
func (d deferral) String() string {
	until := "until a place is free"
	if !d.until.IsZero() {
		until = "until " + d.until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%q waits %s: %s", d.key, until, d.why)
}
