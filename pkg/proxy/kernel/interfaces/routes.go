//go:build linux

package interfaces

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Routes queries the kernel's routes, in the network namespace in which it was opened. It may be used by several
// goroutines.
type Routes struct{ handle *netlink.Handle }

// OpenRoutes opens a socket for queries.
func OpenRoutes() (*Routes, error) {
	handle, err := openHandle()
	if err != nil {
		return nil, err
	}
	return &Routes{handle: handle}, nil
}

// Close closes the socket.
func (r *Routes) Close() { r.handle.Close() }

// IsLocal reports whether the kernel treats an address as this machine's own, as `fib daddr type local` does in the
// tables. No interface needs to have the address: a route of type local is enough, such as `ip route add local
// 198.51.100.0/24 dev lo`, which cloud agents add for their load balancers.
func (r *Routes) IsLocal(addr netip.Addr) (bool, error) {
	if addr.IsUnspecified() {
		return false, nil // the kernel would return the route to loopback
	}
	route, err := r.lookup(addr)
	return route != nil && route.Type == unix.RTN_LOCAL, err
}

// IsOnNode reports whether an address is on this node, according to the kernel's routes: the address is the node's own,
// or its route has a link and no gateway, as routes to a node's own pods do. It is also true for neighbours on the same
// link.
func (r *Routes) IsOnNode(addr netip.Addr) (bool, error) {
	route, err := r.lookup(addr)
	return route != nil && (route.Type == unix.RTN_LOCAL || hasNoGateway(route)), err
}

// lookup returns the route to an address; nil if there is none.
func (r *Routes) lookup(addr netip.Addr) (*netlink.Route, error) {
	routes, err := r.handle.RouteGet(addr.AsSlice())
	switch {
	case isUnreachableErr(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("query route to %s: %w", addr, err)
	case len(routes) == 0:
		return nil, nil
	}
	return &routes[0], nil
}

func hasNoGateway(route *netlink.Route) bool {
	return route.Type == unix.RTN_UNICAST && route.Gw == nil && route.Via == nil && len(route.MultiPath) == 0
}

// isUnreachableErr reports whether an error means that the kernel has no route, or one of type unreachable, prohibit or
// blackhole.
func isUnreachableErr(err error) bool {
	for _, errno := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
