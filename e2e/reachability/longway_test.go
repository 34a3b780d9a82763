package reachability_test

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// addLossyPath routes packets between node-1 and another node, and between their pods, through a LossyPath, which neither
// delays nor drops packets at first.
func (tb *testbed) addLossyPath(number int) *fabric.LossyPath {
	tb.t.Helper()
	path, err := tb.network.AddLossyPath(fmt.Sprint("long-way-", number), tb.nodes[0], tb.nodes[number])
	must.Succeed(tb.t, err)
	return path
}
