package controlplane

import (
	"errors"
	"net/netip"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// The ranges of Services, and what Kubernetes makes of their first addresses.
var (
	ServicesIPv4 = netip.MustParsePrefix("10.96.0.0/16")
	ServicesIPv6 = netip.MustParsePrefix("fd00:10:96::/112")
	// DNS is the ClusterIP of cluster DNS.
	DNS = netip.MustParseAddr("10.96.0.10")
)

// Config says what to start, and where.
type Config struct {
	// Dir is the folder of certificates and data. It must exist. A tmpfs makes etcd fast.
	Dir string
	// Logs is the folder of the programs' logs. Empty, it is the folder logs in Dir.
	Logs string
	// Programs have the modules Etcd and Kubernetes.
	Programs binaries.Programs

	// Netns is where the programs run. Nil is the network namespace of the caller.
	Netns process.NetworkNamespace
	// Address is what the API server listens on and says of itself to pods. Unset, it is 127.0.0.1, which pods cannot
	// use.
	Address netip.Addr
	// Controllers also starts kube-controller-manager and kube-scheduler, without which nothing but the API works: no
	// EndpointSlices of Services, no Pods of Deployments.
	Controllers bool
	// APIServerFlags are appended to those of kube-apiserver.
	APIServerFlags []string
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// complete fills in what was left out.
func (c Config) complete() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("no folder is given for the control plane")
	}
	if c.Logs == "" {
		c.Logs = filepath.Join(c.Dir, "logs")
	}
	if c.Netns == nil {
		c.Netns = process.CurrentNamespace{}
	}
	if !c.Address.IsValid() {
		c.Address = loopback
	}
	return c, nil
}
