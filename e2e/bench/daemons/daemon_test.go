package daemons_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// daemon is a proxy on its own node.
type daemon struct {
	name    string
	node    *fabric.Node
	client  *fabric.Pod
	process *fabric.Process
	log     string
	// ready is the time from its start to the first connection.
	ready time.Duration
}

const (
	healthAddress = "127.0.0.1:10256"
	// waitTimeout is long enough for kube-proxy, whose first sync takes half a minute on a busy machine.
	waitTimeout = 5 * time.Minute
	// dialTimeout limits one connection attempt. A SYN without a reply is retransmitted after a second; a new connection
	// is faster.
	dialTimeout = 20 * time.Millisecond
)

func startVicinity(b *testing.B, s *setup) *daemon {
	program := site.Program(b, "proxy")
	return s.start(b, "vicinity", func(kubeconfig string, node *fabric.Node) *exec.Cmd {
		return exec.Command(program, "run", "--kubeconfig", kubeconfig, "--node", node.Name, "--cluster-cidr", fabric.PodsIPv4.String())
	})
}

// kubeProxyConfig disables changes of sysctls. Everything else is kube-proxy's default.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

func startKubeProxy(b *testing.B, s *setup) *daemon {
	return s.start(b, "kube-proxy", func(kubeconfig string, node *fabric.Node) *exec.Cmd {
		config := filepath.Join(s.dir, "kube-proxy.yaml")
		text := fmt.Sprintf(kubeProxyConfig, fabric.PodsIPv4, node.Name, kubeconfig)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		return exec.Command(s.api.Programs.Path(binaries.Kubernetes, "kube-proxy"), "--config", config)
	})
}

// start starts a proxy on its own node, with permission to read everything, and waits until it serves.
func (s *setup) start(b *testing.B, name string, command func(kubeconfig string, node *fabric.Node) *exec.Cmd) *daemon {
	b.Helper()
	d := &daemon{name: name, log: filepath.Join(s.dir, name+".log")}
	s.started++
	d.node = s.addNode(b, fmt.Sprintf("%s-%d", name, s.started))
	s.createNode(b, d.node)
	var err error
	if d.client, err = d.node.AddPod("client"); err != nil {
		b.Fatal(err)
	}
	log, err := os.Create(d.log)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	cmd := command(s.kubeconfig(b, name), d.node)
	cmd.Stdout, cmd.Stderr = log, log
	started := time.Now()
	if d.process, err = d.node.Start(cmd); err != nil {
		b.Fatal(err)
	}
	d.waitFor(b, s, s.old)
	d.ready = time.Since(started)
	return d
}

func (s *setup) kubeconfig(b *testing.B, user string) string {
	b.Helper()
	config, err := s.api.ClientConfig(user, "system:masters")
	must.Succeed(b, err)
	return site.Kubeconfig(b, config)
}

// waitFor dials until the pod responds, and returns the time of the response.
func (d *daemon) waitFor(b *testing.B, s *setup, pod *fabric.Pod) time.Time {
	b.Helper()
	for deadline := time.Now().Add(waitTimeout); ; {
		reply, err := d.client.Request("tcp", s.frontend, dialTimeout)
		now := time.Now()
		if err == nil && reply.Pod == pod.Name {
			return now
		}
		select {
		case <-d.process.Done():
			b.Fatalf("%s exited (%s); see %s", d.name, d.process.State(), d.log)
		default:
		}
		if now.After(deadline) {
			b.Fatalf("%s does not reach pod %s after %s (%v); see %s", d.name, pod.Name, waitTimeout, err, d.log)
		}
	}
}

// waitIdle waits until the daemon is healthy and uses no more CPU time, so that its start is complete.
func (d *daemon) waitIdle(b *testing.B) time.Duration {
	b.Helper()
	started := time.Now()
	for deadline := started.Add(waitTimeout); ; {
		before := d.cpuTime(b)
		time.Sleep(2 * time.Second)
		_, err := site.Page(d.node.Namespace, healthAddress, "/healthz")
		if err == nil && d.cpuTime(b)-before < 100*time.Millisecond {
			return time.Since(started)
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s is not idle after its start (%v)", d.name, err)
		}
	}
}

func (d *daemon) stop(b *testing.B) {
	b.Helper()
	_ = d.process.Stop(10 * time.Second) // kube-proxy is terminated by the signal itself, which is an error for Stop
}
