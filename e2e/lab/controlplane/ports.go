package controlplane

import (
	"net"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// ports are where the programs listen: on ports that were free, because other control planes may run beside this one.
type ports struct{ etcd, etcdPeer, apiServer, controllerManager, scheduler int }

// freePorts finds ports that are free on all addresses. All stay taken until the last one is known, so that they differ.
func freePorts(place process.Place) (ports, error) {
	var p ports
	err := place.Do(func() error {
		for _, port := range []*int{&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
			listener, err := process.Listen("")
			if err != nil {
				return err
			}
			defer listener.Close()
			*port = listener.Addr().(*net.TCPAddr).Port
		}
		return nil
	})
	return p, err
}
