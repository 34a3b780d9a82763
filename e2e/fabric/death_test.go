package fabric

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// roleVariable makes this test binary act as another program.
const roleVariable = "FABRIC_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "parent":
		fmt.Fprintln(os.Stderr, runParent())
		os.Exit(1)
	case "unprivileged":
		_, err := New()
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runParent starts a program in a fabric, prints its process ID, and waits to be killed.
func runParent() error {
	f, err := New()
	if err != nil {
		return err
	}
	node, err := f.AddNode("node-a")
	if err != nil {
		return err
	}
	process, err := node.Start(exec.Command("/bin/sleep", "600"))
	if err != nil {
		return err
	}
	fmt.Println(process.PID())
	for { // not select, which without cgo is a deadlock
		time.Sleep(time.Hour)
	}
}

func commandInRole(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestProcessesEndWithKilledFabric(t *testing.T) {
	parent := commandInRole("parent")
	output, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	must(t, syscall.Kill(pid, 0))
	must(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	wait.Until(t, "the program in the fabric has exited", func() bool { return hasExited(pid) })
}

// hasExited also counts a zombie process, which its parent has not waited for yet, as exited.
func hasExited(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return errors.Is(err, os.ErrNotExist) || strings.Contains(string(status), ") Z ")
}

func TestErrorWithoutRoot(t *testing.T) {
	unprivileged := commandInRole("unprivileged")
	const nobody = 65534
	unprivileged.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	output, err := unprivileged.Output()
	must(t, err)
	const want = "create network namespace for switch: root (CAP_SYS_ADMIN) is needed: operation not permitted\n"
	if string(output) != want {
		t.Errorf("New() = %q, want %q", output, want)
	}
}
