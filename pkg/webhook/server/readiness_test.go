package server

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

func TestReady(t *testing.T) {
	var pair *tls.Certificate
	noPair, unsynced := errors.New("no Secret"), errors.New("nodes")
	idle := New(Options{
		Log:         slog.New(slog.DiscardHandler),
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, noPair },
	})
	expect := func(server *Server, want string) {
		t.Helper()
		err := server.Ready()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	expect(idle, "not listening")
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), func(_ *Server, options *Options) {
		if options != nil {
			options.Certificate = idle.options.Certificate
			options.Synced = func() error { return unsynced }
		}
	})
	expect(r.Server, "no Secret")
	noPair, pair = nil, validCertificate(t)
	expect(r.Server, "nodes")
	unsynced = nil
	expect(r.Server, "")
	pair = certificate(t, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	expect(r.Server, "expired")
	pair = certificate(t, time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
	expect(r.Server, "not valid before")
}
