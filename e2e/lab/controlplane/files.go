package controlplane

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
)

// files locates the files in the control plane's folder.
type files struct{ dir string }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }
func (f files) data() string            { return f.path("etcd") }
func (f files) ca() string              { return f.path("ca.crt") }
func (f files) certificate(name string) string {
	return f.path(name + ".crt")
}
func (f files) key(name string) string        { return f.path(name + ".key") }
func (f files) kubeconfig(name string) string { return f.path(name + ".kubeconfig") }

// The certificates and keys.
const (
	etcdServer    = "etcd"
	apiServer     = "kube-apiserver"
	kubeletClient = "kube-apiserver-kubelet-client"
	tokens        = "service-accounts" // signs ServiceAccounts' tokens; it has a key only
)

// mastersGroup is a group with all rights; Kubernetes has no way to revoke them.
const mastersGroup = "system:masters"

// makeCertificates creates the certificates and keys of all programs.
func (f files) makeCertificates(ca *authority.Authority, address netip.Addr) error {
	if err := os.WriteFile(f.ca(), ca.Certificate(), 0o644); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	etcd, err := ca.Server(etcdServer, []string{"localhost"}, []net.IP{loopback.AsSlice()})
	if err != nil {
		return err
	}
	server, err := ca.Server(apiServer, apiServerNames, apiServerAddrs(address))
	if err != nil {
		return err
	}
	client, err := ca.Client(kubeletClient, mastersGroup)
	if err != nil {
		return err
	}
	for name, pair := range map[string]authority.Pair{etcdServer: etcd, apiServer: server, kubeletClient: client} {
		if err := f.writePair(name, pair); err != nil {
			return err
		}
	}
	return f.makeTokenKey()
}

// apiServerNames are the names by which pods reach the API server.
var apiServerNames = []string{
	"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// apiServerAddrs returns the addresses of the API server: its own, those of loopback, where a forwarder may listen for
// it, and the ClusterIPs of the Service kubernetes, which are the first of their ranges.
func apiServerAddrs(address netip.Addr) []net.IP {
	var addrs []net.IP
	for _, addr := range []netip.Addr{address, loopback, netip.IPv6Loopback(), ServicesIPv4.Addr().Next(), ServicesIPv6.Addr().Next()} {
		addrs = append(addrs, addr.AsSlice())
	}
	return addrs
}

func (f files) makeTokenKey() error {
	key, err := authority.NewKey()
	if err != nil {
		return err
	}
	text, err := authority.EncodeKey(key)
	if err != nil {
		return err
	}
	return f.writeSecret(f.key(tokens), text)
}

func (f files) writePair(name string, pair authority.Pair) error {
	if err := os.WriteFile(f.certificate(name), pair.Certificate, 0o644); err != nil {
		return fmt.Errorf("write the certificate of %s: %w", name, err)
	}
	return f.writeSecret(f.key(name), pair.Key)
}

func (f files) writeSecret(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}
