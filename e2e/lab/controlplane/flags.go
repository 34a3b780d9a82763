package controlplane

import (
	"fmt"
	"net"
	"strconv"
)

// The functions in this file return the flags of the programs, only those that differ from the defaults.

func loopbackAddress(port uint16) string {
	return net.JoinHostPort(loopback.String(), strconv.Itoa(int(port)))
}

// etcdFlags returns the flags of an etcd of one member that never waits for a disk: none of its data outlives the lab.
func (c *ControlPlane) etcdFlags() []string {
	client, peer := "https://"+loopbackAddress(c.ports.etcd), "https://"+loopbackAddress(c.ports.etcdPeer)
	return []string{
		"--data-dir=" + c.files.data(),
		"--unsafe-no-fsync",
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--trusted-ca-file=" + c.files.ca(),
		"--cert-file=" + c.files.certificate(etcdServer),
		"--key-file=" + c.files.key(etcdServer),
		"--client-cert-auth",
		"--peer-trusted-ca-file=" + c.files.ca(),
		"--peer-cert-file=" + c.files.certificate(etcdServer),
		"--peer-key-file=" + c.files.key(etcdServer),
		"--peer-client-cert-auth",
	}
}

func (c *ControlPlane) apiServerFlags() []string {
	flags := []string{
		"--etcd-servers=https://" + loopbackAddress(c.ports.etcd),
		"--etcd-cafile=" + c.files.ca(),
		"--etcd-certfile=" + c.files.certificate(apiServer),
		"--etcd-keyfile=" + c.files.key(apiServer),
		"--bind-address=" + c.config.Address.String(),
		"--advertise-address=" + c.config.Address.String(),
		fmt.Sprintf("--secure-port=%d", c.ports.apiServer),
		"--tls-cert-file=" + c.files.certificate(apiServer),
		"--tls-private-key-file=" + c.files.key(apiServer),
		"--client-ca-file=" + c.files.ca(),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged", // as with kubeadm: kube-proxy's pods are privileged
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + ServicesIPv4.String() + "," + ServicesIPv6.String(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.files.key(tokens),
		"--service-account-signing-key-file=" + c.files.key(tokens),
		"--kubelet-certificate-authority=" + c.files.ca(),
		"--kubelet-client-certificate=" + c.files.certificate(kubeletClient),
		"--kubelet-client-key=" + c.files.key(kubeletClient),
		// No DNS server resolves the names of nodes.
		"--kubelet-preferred-address-types=InternalIP",
	}
	if c.config.Address.IsLoopback() {
		// EndpointSlices must not contain such an address, and since 1.37 the API server does not start if it would write
		// one.
		flags = append(flags, "--endpoint-reconciler-type=none")
	}
	return append(flags, c.config.APIServerFlags...)
}

// controllerManagerFlags returns flags without --allocate-node-cidrs: the code that creates a node's network chooses
// the addresses of its pods.
func (c *ControlPlane) controllerManagerFlags() []string {
	kubeconfig := c.files.kubeconfig(controllerManager)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback.String(),
		fmt.Sprintf("--secure-port=%d", c.ports.controllerManager),
		"--leader-elect=false", // there is only one
		"--use-service-account-credentials",
		"--root-ca-file=" + c.files.ca(),
		"--service-account-private-key-file=" + c.files.key(tokens),
	}
}

func (c *ControlPlane) schedulerFlags() []string {
	kubeconfig := c.files.kubeconfig(scheduler)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback.String(),
		fmt.Sprintf("--secure-port=%d", c.ports.scheduler),
		"--leader-elect=false", // there is only one
	}
}
