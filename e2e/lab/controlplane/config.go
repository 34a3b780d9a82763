package controlplane

import (
	"errors"
	"net/netip"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// The Service ranges, and the well-known ClusterIPs in them.
var (
	ServicesIPv4 = netip.MustParsePrefix("10.96.0.0/16")
	ServicesIPv6 = netip.MustParsePrefix("fd00:10:96::/112")
	// DNS is the ClusterIP of cluster DNS.
	DNS = netip.MustParseAddr("10.96.0.10")
)

// Config configures a control plane.
type Config struct {
	// Dir is the folder of certificates and data. It must exist. etcd is fast on a tmpfs.
	Dir string
	// Logs is the folder of the programs' logs. It defaults to the folder logs in Dir.
	Logs string
	// Programs has the modules Etcd and Kubernetes.
	Programs binaries.Programs

	// Netns is the network namespace of the programs. nil means the namespace of the caller.
	Netns process.NetworkNamespace
	// Address is the address that the API server listens on and advertises to pods. It defaults to 127.0.0.1, which pods
	// cannot use.
	Address netip.Addr
	// Controllers also starts kube-controller-manager and kube-scheduler. Without them only the API works: Services get no
	// EndpointSlices, and Deployments no Pods.
	Controllers bool
	// APIServerFlags are appended to those of kube-apiserver.
	APIServerFlags []string
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// withDefaults returns the configuration with defaults applied.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("no Dir is given")
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
