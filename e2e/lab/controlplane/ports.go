package controlplane

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/port"
)

// ports are where the programs listen. They are reserved on all addresses until the control plane stops, for others may run
// beside this one, and clients dial an API server that is stopped for a while.
type ports struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler uint16

	reserved []*port.Reserved
}

func (p *ports) reserve(netns process.NetworkNamespace) error {
	return netns.Do(func() error {
		for _, each := range []*uint16{&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
			reserved, err := port.Reserve(netip.IPv6Unspecified())
			if err != nil {
				return err
			}
			p.reserved = append(p.reserved, reserved)
			*each = reserved.Addr.Port()
		}
		return nil
	})
}

// release gives all back.
func (p *ports) release() {
	for _, reserved := range p.reserved {
		reserved.Close()
	}
	p.reserved = nil
}
