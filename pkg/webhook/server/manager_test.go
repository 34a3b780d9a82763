package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiserver "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// TestTheManagersPartsLastAsLongAsReviewsAreAnswered runs the server as cmd/webhook does. The manager's other parts,
// caches among them, end only when the delay is over, and then everything ends.
func TestTheManagersPartsLastAsLongAsReviewsAreAnswered(t *testing.T) {
	const delay = 5 * time.Second // it answers once meanwhile
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", reserve.OnLoopback(t).String())
	if err != nil {
		t.Fatal(err)
	}
	pair, log := valid(t), slog.New(slog.DiscardHandler)
	server := New(Options{
		Listener: listener, ShutdownDelay: delay, Log: log,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil },
	})
	for path, handler := range Handlers(knowing(rules.Settings{}, nil), DefaultLimits(), silent{}, log) {
		server.Register(path, handler)
	}
	// No part asks the API server anything, so there need not be one.
	m, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan struct{})
	if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	if m.GetWebhookServer() != server {
		t.Fatal("the manager runs another server")
	}
	signal, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- m.Start(server.Drain(signal)) }()
	<-began // the manager starts it when the webhook server has started

	r := &running{Server: server, url: "https://" + listener.Addr().String(), pair: pair}
	asked := about{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	ask := func() (*answered, error) {
		answer, _, err := send(t.Context(), r.client(t), r.url+ValidateServicesPath, bytes.NewReader(asked.body))
		return answer, err
	}
	stop()
	signalled := time.Now()
	wait.Until(t, "the server drains", func() bool { return server.readiness().Draining })
	answer, err := ask()
	if err != nil || answer.StatusCode != http.StatusOK || !answer.Close {
		t.Fatalf("while draining: %v, %v", answer, err)
	}
	<-ended
	if took := time.Since(signalled); took < delay {
		t.Errorf("the other part ended %s after the signal, want %s", took, delay)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := ask(); err == nil {
		t.Error("the server answers still")
	}
}
