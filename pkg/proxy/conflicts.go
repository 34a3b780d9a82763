package proxy

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Conflict is a Service that wants frontends which other Services own.
type Conflict struct {
	Service model.ObjectName
	// Lost are the first of them, at most MaxLostFrontends, in the order of the ports; Total is how many there are.
	Lost  []model.LostFrontend
	Total int
}

// The bounds of what a report says of conflicts. Any owner may write any external IP into any number of Services, and a
// report becomes Events and lines of the log.
const (
	MaxConflicts     = 100
	MaxLostFrontends = 10
)

// lose adds what one port of the Service does not get.
func (c *Conflict) lose(lost []model.LostFrontend) {
	c.Total += len(lost)
	c.Lost = append(c.Lost, lost[:min(len(lost), MaxLostFrontends-len(c.Lost))]...)
}
