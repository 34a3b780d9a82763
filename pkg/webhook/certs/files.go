package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// DefaultFilesInterval is how often files are read. A kubelet takes up to two minutes to update the files of a Secret.
const DefaultFilesInterval = 10 * time.Second

// FilesSettings configure Files.
type FilesSettings struct {
	// Certificate and Key are PEM files. The first contains the server's certificate, followed by intermediates.
	Certificate, Key string
	// Interval is how often the files are read; 0 means DefaultFilesInterval.
	Interval time.Duration

	Log      *slog.Logger
	Observer Observer
}

// Files serves a certificate that another program renews in two files. If the pair becomes unusable, the last usable
// one is still served.
type Files struct {
	served

	settings FilesSettings
	failures failures
}

// NewFiles reads the files. It fails if the pair cannot be served. A pair that is not valid at present is served
// anyway, because there is no better one.
func NewFiles(ctx context.Context, settings FilesSettings) (*Files, error) {
	if settings.Interval == 0 {
		settings.Interval = DefaultFilesInterval
	}
	f := &Files{settings: settings, failures: failures{log: settings.Log, observer: settings.Observer}}
	if err := f.read(ctx); err != nil && f.current.Load() == nil {
		return nil, err
	}
	return f, nil
}

// Run rereads the files until the context ends.
func (f *Files) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) { _ = f.read(ctx) }, f.settings.Interval) // read has reported its error
	return nil
}

// read reads the files, and serves the new pair from now on, unless it is invalid while the served pair is valid.
func (f *Files) read(ctx context.Context) error {
	object := f.settings.Certificate + " and " + f.settings.Key
	pair, err := tls.LoadX509KeyPair(f.settings.Certificate, f.settings.Key)
	if err != nil {
		return f.failures.report(ctx, ReadFiles, object, err)
	}
	now := time.Now()
	err = checkValidity(pair.Leaf, now)
	previous := f.current.Load()
	if err != nil && previous != nil && checkValidity(previous.Leaf, now) == nil || !f.set(&pair) {
		return f.failures.report(ctx, ReadFiles, object, err)
	}
	f.settings.Observer.CertificateExpires(pair.Leaf.NotAfter)
	if expires := firstExpiry(pair.Certificate[1:]); !expires.IsZero() {
		f.settings.Observer.AuthorityExpires(expires)
	}
	f.settings.Log.Info("certificates: serving a new certificate", "serial", pair.Leaf.SerialNumber.Text(16), "expires", pair.Leaf.NotAfter)
	return f.failures.report(ctx, ReadFiles, object, err)
}

// firstExpiry returns when the first of the CAs in a certificate's file expires; zero if there are none. The root is
// rarely among them.
func firstExpiry(chain [][]byte) (expires time.Time) {
	for _, raw := range chain {
		if parsed, err := x509.ParseCertificate(raw); err == nil {
			expires = minTime(expires, parsed.NotAfter)
		}
	}
	return expires
}
