package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/cache"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// unreachableKubeconfig is a kubeconfig of an API server that does not reply.
const unreachableKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: away, context: {cluster: away, user: nobody}}]
users: [{name: nobody, user: {}}]
current-context: away
`

// noCertificate is a source that never gets a certificate.
type noCertificate struct{ certs.Source }

func (noCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, errors.New("the certificate is not created yet")
}

// lockedBuffer is a buffer for a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestStartWaitsForTheAPIServer(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(unreachableKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	w := &webhook{
		flags:       &runFlags{webhookAddress: "127.0.0.1:0", healthAddress: "0", metricAddress: "0"},
		log:         slog.New(slog.NewTextHandler(&log, nil)),
		certificate: noCertificate{},
	}
	listener, err := w.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w.manager, err = w.newManager(kube.Connection{Kubeconfig: kubeconfig}); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = cache.NewCache(t.Context(), w.manager.GetCache()); err != nil {
		t.Fatal(err)
	}
	w.https = w.newServer(listener)
	if err := w.addProbes(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cli.RunAll(ctx, w.runManager, w.https.Start) }()
	wait.Until(t, "the webhook listens", func() bool { return strings.Contains(w.https.Ready().Error(), "not created yet") })
	if w.checkSynced() == nil {
		t.Error("the cluster counts as synced before it was listed")
	}
	for range 2 {
		if w.checkReady() == nil {
			t.Error("the webhook is ready without a certificate")
		}
	}
	end()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the webhook did not exit")
	}
	if count := strings.Count(log.String(), "the certificate is not created yet"); count != 1 {
		t.Errorf("the log has %d reasons why it is not ready, want 1: %s", count, log.String())
	}
}
