//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The oldest kernel whose nf_tables has everything that our tables use.
const (
	oldestMajor = 5
	oldestMinor = 13
)

// openWriter opens the socket for batches, and tests it. As the first netlink socket of a process it gets the process's
// ID as its port ID, by which nft names the owner of a table.
func openWriter() (*socket, error) {
	if err := checkKernel(); err != nil {
		return nil, err
	}
	writer, err := openQuerySocket()
	if err != nil {
		return nil, explainSetupError(err)
	}
	if err := probeTable(writer, model.IPv4, 0); err != nil {
		return nil, errors.Join(explainSetupError(err), writer.conn.Close())
	}
	return writer, nil
}

func checkKernel() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("get kernel version: %w", err)
	}
	return checkRelease(unix.ByteSliceToString(name.Release[:]))
}

func checkRelease(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("parse kernel version %q: %w", release, err)
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return fmt.Errorf("this kernel is Linux %s: use %d.%d or newer, whose nf_tables has all features that the tables need",
			release, oldestMajor, oldestMinor)
	}
	return nil
}

// familiesOf returns the families in which the kernel has tables. openWriter has tested IPv4.
func familiesOf(writer *socket) ([]model.Family, error) {
	err := probeTable(writer, model.IPv6, 0)
	switch {
	case err == nil:
		return model.Families, nil
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return []model.Family{model.IPv4}, nil
	}
	return nil, fmt.Errorf("probe for IPv6 tables: %w", err)
}

// probeTable tests whether a table with these flags could be added.
func probeTable(s *socket, family model.Family, flags uint32) error {
	return try(s, func(e *encoder, table string) { e.addTable(nfproto(family), table, flags) })
}

// try tests whether some operations on a table that does not exist would succeed, and leaves nothing behind: a batch
// without an end is checked and discarded, which is how `nft --check` works.
func try(s *socket, write func(e *encoder, table string)) error {
	e := &encoder{}
	e.frame(unix.NFNL_MSG_BATCH_BEGIN)
	write(e, fmt.Sprintf("vicinity-probe-%d", s.conn.PID()))
	e.addFlags(unix.NLM_F_ACK)
	if err := s.send(e.b); err != nil {
		return err
	}
	//nolint:forbidigo // no wait: the kernel has answered when send returns
	failures, err := s.outcome(context.Background(), 0, e.sequence-1)
	if err != nil {
		return err
	}
	for _, f := range failures {
		return f.errno
	}
	return nil
}
