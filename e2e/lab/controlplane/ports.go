package controlplane

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/port"
)

// ports are the programs' ports. They are reserved on all addresses until the control plane stops, because other
// control planes may run on the machine, and clients keep connecting to the port of an API server that is stopped for a
// while.
type ports struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler uint16

	reserved []*port.Reserved
}

func (p *ports) reserve(netns process.NetworkNamespace) error {
	return netns.Do(func() error {
		for _, target := range []*uint16{&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
			reserved, err := port.Reserve(netip.IPv6Unspecified())
			if err != nil {
				return err
			}
			p.reserved = append(p.reserved, reserved)
			*target = reserved.Addr.Port()
		}
		return nil
	})
}

// release releases all ports.
func (p *ports) release() {
	for _, reserved := range p.reserved {
		reserved.Close()
	}
	p.reserved = nil
}
