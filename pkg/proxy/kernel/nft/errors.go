//go:build linux

package nft

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Errors for missing prerequisites. Each text includes the remedy.
var (
	errPrivilege  = errors.New("programming nftables needs root (CAP_NET_ADMIN): run as root")
	errNoNFTables = errors.New("this kernel has no nf_tables: load the module nf_tables, or use a kernel built with CONFIG_NF_TABLES")

	errNoSuchOperation = errors.New("unsupported operation")
)

// ErrUnknownOutcome means that the kernel did not reply: the batch may or may not be applied.
var ErrUnknownOutcome = errors.New("the kernel did not report whether it applied the batch")

// TableOwnedError means that a table belongs to another living process, and that the kernel allows only that process to
// change it.
type TableOwnedError struct {
	Family model.Family
	// Port is the netlink port ID of the owner. It usually is the process's ID.
	Port uint32
	// Process is the name of the process with that ID; empty if there is none.
	Process string
}

// Error names the owner and the likely cause.
func (e *TableOwnedError) Error() string {
	owner := fmt.Sprintf("netlink port id %d", e.Port)
	if e.Process != "" {
		owner += ", " + e.Process
	}
	return fmt.Sprintf("table %s is owned by another process (%s): is another proxy running in this network namespace?",
		tableText(e.Family), owner)
}

// Unwrap returns the kernel's own error.
func (e *TableOwnedError) Unwrap() error { return unix.EPERM }

// processName returns the name of a process, empty if there is none with that ID.
func processName(pid uint32) string {
	name, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// explainSetupError turns the kernel's error at first contact into one that names the missing prerequisite.
func explainSetupError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (%w)", errPrivilege, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (%w)", errNoNFTables, err)
	}
	return fmt.Errorf("connect to nf_tables: %w", err)
}
