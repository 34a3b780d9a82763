package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// DefaultFilesInterval is how often files are looked at whatever the kernel tells: a mounted Secret is a link through other folders.
const DefaultFilesInterval = 10 * time.Second

// FilesSettings are where a certificate is read from.
type FilesSettings struct {
	// Certificate and Key are PEM files. The first has the server's certificate, and behind it what is between it and its CA.
	Certificate, Key string
	// Interval is how often the files are looked at; DefaultFilesInterval if it is 0.
	Interval time.Duration

	Log      *slog.Logger
	Observer Observer
}

// Files is a certificate that somebody else renews in two files. A pair that cannot be used changes nothing: what was served before is
// served on.
type Files struct {
	settings FilesSettings
	watcher  *certwatcher.CertWatcher
	failures failures

	mu     sync.Mutex
	newest *tls.Certificate // what was read last
	served *tls.Certificate
}

// NewFiles reads the files, and refuses what cannot be served.
func NewFiles(settings FilesSettings) (*Files, error) {
	if settings.Log == nil || settings.Observer == nil {
		return nil, errors.New("certificates need a log and an observer")
	}
	if settings.Interval == 0 {
		settings.Interval = DefaultFilesInterval
	}
	watcher, err := certwatcher.New(settings.Certificate, settings.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s and its key %s: %w", settings.Certificate, settings.Key, err)
	}
	f := &Files{
		settings: settings, watcher: watcher.WithWatchInterval(settings.Interval),
		failures: failures{log: settings.Log, observer: settings.Observer},
	}
	if _, err := f.GetCertificate(nil); err != nil {
		return nil, err
	}
	return f, nil
}

// GetCertificate returns what is served, from memory.
func (f *Files) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	read, err := f.watcher.GetCertificate(hello)
	if err != nil || read == nil {
		return nil, errNone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if read != f.newest {
		f.newest = read
		f.takeUp(read, time.Now())
	}
	return f.served, nil
}

// takeUp serves what was read from now on, unless it is not valid and what is served is.
func (f *Files) takeUp(read *tls.Certificate, now time.Time) {
	if err := valid(read.Leaf, now); err != nil {
		err = fmt.Errorf("use the certificate %s: %w", f.settings.Certificate, err)
		f.settings.Observer.CertificateFailed(ReadFiles, err)
		isServed := f.served != nil && valid(f.served.Leaf, now) == nil
		f.settings.Log.Error("certificates: the files have one that is not valid now", "keepingTheLastOne", isServed, "error", err)
		if isServed {
			return
		}
	}
	f.served = read
	expiry := expiryOf(read)
	expiry.told(f.settings.Observer)
	f.settings.Log.Info("certificates: a new one is served", "serial", read.Leaf.SerialNumber.Text(16), "expires", expiry.Leaf)
}

// expiryOf is until when a certificate and the CAs in its file are valid. Its root is seldom among them.
func expiryOf(certificate *tls.Certificate) Expiry {
	expiry := Expiry{Leaf: certificate.Leaf.NotAfter}
	for _, raw := range certificate.Certificate[1:] {
		if parsed, err := x509.ParseCertificate(raw); err == nil {
			expiry.CA = earliest(expiry.CA, parsed.NotAfter)
		}
	}
	return expiry
}

// Expiry says until when what is served is valid. The CA is the one in the certificate's file that expires first; zero if there is none.
func (f *Files) Expiry() Expiry {
	certificate, err := f.GetCertificate(nil)
	if err != nil {
		return Expiry{}
	}
	return expiryOf(certificate)
}

// Ready returns why nobody can be served.
func (f *Files) Ready() error {
	certificate, err := f.GetCertificate(nil)
	if err != nil {
		return err
	}
	return ready(certificate, time.Now())
}

// Run follows the files until the context ends. The kernel tells certwatcher of changes. It tells nobody of what it could not read, so
// the files are also read here.
func (f *Files) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- f.watcher.Start(ctx) }()
	ticker := time.NewTicker(f.settings.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if ended != nil {
				if err := <-ended; err != nil {
					f.settings.Log.Debug("ending to watch a certificate's files", "error", err)
				}
			}
			return nil
		case err := <-ended: // files that are not there for ten seconds; they are looked at all the same
			ended = nil
			_ = f.failures.tell(ctx, ReadFiles, "being told of changes", err)
		case <-ticker.C:
			f.look(ctx)
		}
	}
}

// look reads the files, and takes up what they say.
func (f *Files) look(ctx context.Context) {
	object := f.settings.Certificate + " and " + f.settings.Key
	if f.failures.tell(ctx, ReadFiles, object, f.watcher.ReadCertificate()) != nil {
		return
	}
	_, _ = f.GetCertificate(nil) // nobody may have asked since
}
