package daemon

import (
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// TestWhereClientsCannotBeDistinguishedAnAddressIsRejected, but a Unix socket is served.
func TestWhereClientsCannotBeDistinguishedAnAddressIsRejected(t *testing.T) {
	const address, socket = "0.0.0.0:18000", "unix:///run/vicinity/xds.sock"
	for name, test := range map[string]struct {
		routes []string
		refuse bool
	}{
		"no default route":         {},
		"a gateway":                {routes: []string{"route add default via 172.31.0.254", "-6 route add default via 2001:db8:1::fe"}},
		"no gateway":               {routes: []string{"route add default dev eth0"}, refuse: true},
		"no gateway in one family": {routes: []string{"route add default via 172.31.0.254", "-6 route add default dev eth0"}, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := netns.New(t)
			for _, args := range append([]string{
				"link add eth0 type veth peer name far", "link set far up", "link set eth0 up",
				"addr add 172.31.0.1/24 dev eth0", "-6 addr add 2001:db8:1::1/64 dev eth0 nodad",
			}, test.routes...) {
				n.Exec("ip", strings.Fields(args)...)
			}
			for _, addresses := range [][]string{{address}, {socket, address}, {socket}} {
				var routes *interfaces.Routes
				var err error
				n.Do(func() { routes, err = routesFor(addresses) })
				if isRejected := err != nil; isRejected != (test.refuse && slices.Contains(addresses, address)) {
					t.Errorf("%q: %v", addresses, err)
				}
				if routes != nil {
					routes.Close()
				}
			}
		})
	}
}
