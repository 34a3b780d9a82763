package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is the directory of the kernel's settings. Those of a network namespace are the ones of the thread that opens
// the file.
const Root = "/proc/sys"

// Outcome is the outcome of checking or writing a DesiredValue.
type Outcome string

// The outcomes.
const (
	// Met means that the kernel had the value already.
	Met Outcome = "met"
	// Written means that the kernel has the value now.
	Written Outcome = "written"
	// Unmet means that the kernel has another value, and keeps it.
	Unmet Outcome = "unmet"
	// Missing means that this kernel, or this network namespace, has no such setting.
	Missing Outcome = "missing"
)

// Result is the value of a kernel setting, and the outcome.
type Result struct {
	Desired DesiredValue
	Outcome Outcome
	// Previous is the value that was found, in the kernel's unit; 0 if there was none.
	Previous int64
	// Err is why a setting could not be read or written. A Result of Check has one only if it could not be read.
	Err error
}

// Check compares the kernel's settings below a root, /proc/sys, with the desired values, and changes nothing. A setting
// that is listed twice is read twice.
func Check(root string, desired ...DesiredValue) []Result {
	results := make([]Result, 0, len(desired))
	for _, value := range desired {
		results = append(results, check(root, value))
	}
	return results
}

func check(root string, desired DesiredValue) Result {
	result := Result{Desired: desired}
	text, err := os.ReadFile(path(root, desired.Name))
	if err == nil {
		result.Previous, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		result.Outcome = Missing
	case err != nil:
		result.Outcome, result.Err = Unmet, fmt.Errorf("read %s: %w", desired.Name, err)
	case desired.isSatisfied(result.Previous):
		result.Outcome = Met
	default:
		result.Outcome = Unmet
	}
	return result
}

// write never creates a file: below /proc/sys no process can, and elsewhere it would not be a kernel setting.
func (r *Result) write(root string) {
	file, err := os.OpenFile(path(root, r.Desired.Name), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = file.WriteString(strconv.FormatInt(r.Desired.Value, 10))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		r.Err = fmt.Errorf("write %s: %w", r.Desired.Name, err)
		return
	}
	r.Outcome = Written
}

// Advice returns how an administrator sets the desired value.
func (v DesiredValue) Advice() string {
	return fmt.Sprintf("on the node itself: sysctl -w %s=%d", v.Name, v.Value)
}

func path(root, name string) string {
	return filepath.Join(root, filepath.FromSlash(strings.ReplaceAll(name, ".", "/")))
}
