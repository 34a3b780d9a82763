package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	good := readiness{Listening: true, Certificate: &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}}
	for name, c := range map[string]struct {
		change func(*readiness)
		want   string
	}{
		"nothing":                  {func(*readiness) {}, ""},
		"the listener":             {func(r *readiness) { r.Listening = false }, "does not listen yet"},
		"time":                     {func(r *readiness) { r.Draining = true }, "draining"},
		"time, of an ended server": {func(r *readiness) { r.Draining, r.Listening = true, false }, "draining"},
		"a certificate":            {func(r *readiness) { r.CertificateError = errors.New("no Secret") }, "no certificate to serve: no Secret"},
		"a certificate of today": {
			func(r *readiness) { r.Certificate = &x509.Certificate{NotAfter: now.Add(-time.Second)} }, "expired at 2026-03-01T11:59:59Z",
		},
		"patience": {
			func(r *readiness) {
				r.Certificate = &x509.Certificate{NotBefore: now.Add(time.Second), NotAfter: now.Add(time.Hour)}
			}, "valid only from 2026-03-01T12:00:01Z on",
		},
		"the cluster": {func(r *readiness) { r.Unsynced = errors.New("namespaces") }, "the cluster is not known yet: namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			readiness := good
			c.change(&readiness)
			err := readiness.check(now)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAServerIsReadyOnceItHasAllItNeeds(t *testing.T) {
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
	expect(idle, "does not listen")
	if idle.StartedChecker()(nil) == nil {
		t.Error("StartedChecker reports that the server has started")
	}
	r := start(t, knowing(rules.Settings{}, nil), DefaultLimits(), func(_ *Server, options *Options) {
		if options != nil {
			options.Certificate = idle.options.Certificate
			options.Synced = func() error { return unsynced }
		}
	})
	expect(r.Server, "no Secret")
	noPair = nil
	expect(r.Server, "not loaded yet")
	pair = &tls.Certificate{Certificate: [][]byte{[]byte("garbage")}}
	expect(r.Server, "reading it")
	pair = &tls.Certificate{Certificate: valid(t).Certificate}
	expect(r.Server, "nodes")
	unsynced = nil
	expect(r.Server, "")
	pair = certificate(t, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	expect(r.Server, "expired")
}
