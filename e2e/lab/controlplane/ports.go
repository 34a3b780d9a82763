package controlplane

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// ports are where the programs listen: on ports that were free, because other control planes may run beside this one.
type ports struct{ etcd, etcdPeer, apiServer, controllerManager, scheduler int }

// The ports to choose from lie below those that the kernel gives to clients (net.ipv4.ip_local_port_range). While the
// API server is stopped, a client that dials it again and again could be given its port and connect to itself; nobody
// else could listen then.
const (
	firstPort = 10_000
	lastPort  = 32_000
	attempts  = 100
)

// freePorts finds ports. All stay taken until the last one is known, so that they differ.
func freePorts(place process.Place) (ports, error) {
	var p ports
	err := place.Do(func() error {
		for _, port := range []*int{&p.etcd, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
			listener, number, err := listenAnywhere()
			if err != nil {
				return err
			}
			defer listener.Close()
			*port = number
		}
		return nil
	})
	return p, err
}

// listenAnywhere listens on all addresses, so that the port is free on each.
func listenAnywhere() (net.Listener, int, error) {
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if listener, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			return listener, port, nil
		}
	}
	return nil, 0, errNoPort
}

var errNoPort = errors.New("no free port was found")
