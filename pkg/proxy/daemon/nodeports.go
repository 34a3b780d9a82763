package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newNodePorts returns the component that logs where node ports are served.
func newNodePorts(c *common) component {
	loopback := slices.SortedFunc(maps.Values(loopbackOf(c.config)), netip.Addr.Compare)
	return component{handler: &nodePortLogger{log: c.log, families: c.config.Families, loopback: loopback}}
}

// nodePortLogger logs where node ports are served whenever that changes, unless they are served on all addresses. Only
// this log shows that they are served nowhere, as when the address in the Node object is that of a NAT in front of the
// machine.
type nodePortLogger struct {
	log      *slog.Logger
	families []model.Family
	loopback []netip.Addr // on which the process itself serves them
	logged   []netip.Addr
	synced   bool // at least once
}

// Derive returns nil: only OnSynced is used.
func (*nodePortLogger) Derive([]selection.Decision) any { return nil }

// OnApplied does nothing.
func (*nodePortLogger) OnApplied(model.ObjectName, any) {}

// OnSynced logs the addresses if they changed.
func (n *nodePortLogger) OnSynced(sync selection.SyncState) {
	addrs := slices.Concat(sync.Scope.NodePorts, n.loopback)
	if n.synced && slices.Equal(addrs, n.logged) || len(sync.Scope.AllAddrFamilies) == len(n.families) {
		return
	}
	n.synced, n.logged = true, addrs
	if len(addrs) == 0 {
		n.log.Warn("node ports are not served: no interface has an address that --nodeport-addresses selects")
		return
	}
	n.log.Info("serving node ports", "addresses", fmt.Sprint(addrs))
}
