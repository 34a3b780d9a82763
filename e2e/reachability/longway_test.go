package reachability_test

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// takeLongWay routes packets between node-1 and another node, and between their pods, through a LongWay, which neither
// delays nor drops packets at first.
func (s *town) takeLongWay(number int) *fabric.LongWay {
	s.t.Helper()
	way, err := s.network.AddLongWay(fmt.Sprint("long-way-", number), s.nodes[0], s.nodes[number])
	must.Succeed(s.t, err)
	return way
}
