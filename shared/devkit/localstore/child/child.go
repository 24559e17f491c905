// Package child runs programs that never outlive this process.
//
// A child gets its own process group, so that Ctrl-C in a terminal reaches only this program, which decides
// the order in which its children end. If this program is killed, the kernel ends the child (prctl
// PR_SET_PDEATHSIG): this package requires Linux.
package child

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A Spec describes a program to run.
type Spec struct {
	Name string // for messages
	Path string
	Args []string
	Dir  string
	Env  []string // the whole environment
	Log  string   // the file that standard output and error are appended to; "" for nowhere
	User *syscall.Credential
	// OnParentDeath is the signal that the kernel sends when this program ends. The zero value means SIGKILL.
	OnParentDeath syscall.Signal
}

// A Child is a running process.
type Child struct {
	name string
	log  string
	from int64 // offset of this child's part of the log
	pid  int
	done chan struct{}
	err  error // how it ended; read after done is closed

	paused atomic.Bool
}

// Start runs spec. The child is always reaped; Done is closed when it ends.
func Start(spec Spec) (*Child, error) {
	command, err := spec.command()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	started := make(chan error, 1)
	c := &Child{name: spec.Name, log: spec.Log, done: make(chan struct{})}
	if info, err := os.Stat(spec.Log); err == nil {
		c.from = info.Size()
	}
	go func() {
		// The kernel treats the death of the forking thread as the death of the parent, so this thread is
		// locked as long as the child runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		if file, ok := command.Stdout.(*os.File); ok {
			_ = file.Close() // the child has its own copy
		}
		if err != nil {
			started <- err
			return
		}
		c.pid = command.Process.Pid
		started <- nil
		c.err = command.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return c, nil
}

func (s Spec) command() (*exec.Cmd, error) {
	command := exec.Command(s.Path, s.Args...)
	command.Dir, command.Env = s.Dir, s.Env
	signal := cmp.Or(s.OnParentDeath, syscall.SIGKILL)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: signal, Credential: s.User}
	if s.Log == "" {
		return command, nil
	}
	file, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = file, file
	return command, nil
}

// Run runs spec to its end, or kills it when ctx ends. A failure quotes the first line of the log that names
// a cause.
func Run(ctx context.Context, spec Spec) error {
	c, err := Start(spec)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.Kill()
		return fmt.Errorf("%s: %w", c.name, ctx.Err())
	}
	if c.err != nil {
		return fmt.Errorf("%s", c.Outcome())
	}
	return nil
}

// PID returns the process id.
func (c *Child) PID() int { return c.pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Outcome describes in one line how the child ended and why: with the Cause in its log, or with the last line
// if it ended without an error. Call it after Done.
func (c *Child) Outcome() string {
	how := "ended"
	if c.err != nil {
		how = "ended with " + c.err.Error()
	}
	text := c.written()
	why := lastLine(text)
	if failed, ok := errors.AsType[*exec.ExitError](c.err); ok && failed.ExitCode() < 0 {
		why = failureIn(text) // a signal ended it, so the last line is about something else
	} else if c.err != nil {
		why = Cause(text)
	}
	if why != "" {
		how += ": " + why
	}
	return c.name + " " + how
}

// Signal sends a signal to the child only.
func (c *Child) Signal(signal syscall.Signal) error {
	select {
	case <-c.done:
		return fmt.Errorf("signal %s: %w", c.name, os.ErrProcessDone)
	default:
	}
	if err := syscall.Kill(c.pid, signal); err != nil {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	return nil
}

// Stop sends the child a signal, and kills it if it has not ended within timeout. It returns once the child has ended.
func (c *Child) Stop(signal syscall.Signal, timeout time.Duration) {
	c.Resume() // a stopped process would not receive the signal
	_ = c.Signal(signal)
	select {
	case <-c.done:
	case <-time.After(timeout):
		c.Kill()
	}
}

// Kill ends the child and its own children at once (SIGKILL) and returns when the child has ended.
func (c *Child) Kill() {
	family := append([]int{c.pid}, childrenOf(c.pid)...)
	if c.Signal(syscall.SIGKILL) == nil {
		for _, pid := range family[1:] {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	<-c.done
}

// Pause stops the child and its own children (SIGSTOP). Connections to them stay open without an answer.
func (c *Child) Pause() error {
	c.paused.Store(true)
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for _, pid := range childrenOf(c.pid) { // after the parent was stopped, so that no new ones appear
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return nil
}

// Resume continues a paused child. It has no effect on a running or ended one.
func (c *Child) Resume() {
	if !c.paused.Swap(false) {
		return
	}
	children := childrenOf(c.pid)
	if c.Signal(syscall.SIGCONT) != nil {
		return
	}
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// A Server is a program that can be started again, such as after a crash (Launch). A type that embeds it controls the
// current process with its methods, which are safe for concurrent use.
type Server struct {
	// StopSignal asks the program to end. The zero value means SIGTERM.
	StopSignal syscall.Signal

	current atomic.Pointer[Child]
}

const (
	readyWithin  = 4 * time.Minute // includes recovery after a crash; a program that fails ends earlier
	stopWithin   = time.Minute     // a service waits 20 s for requests in flight
	longestPause = 50 * time.Millisecond
)

// Launch runs spec as the server's current process, and returns when ready returns nil. It returns an error if the
// process ends, or is not ready after four minutes. It polls quickly at first, because most servers need some 10 ms.
func Launch(ctx context.Context, s *Server, spec Spec, ready func(*Child) error) error {
	process, err := Start(spec)
	if err != nil {
		return err
	}
	s.current.Store(process)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		waiting := ready(process)
		if waiting == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s (its log is %s)", process.Outcome(), spec.Log)
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready (%w); its log is %s: %w", spec.Name, waiting, spec.Log,
				ctx.Err())
		case <-time.After(min(max(time.Since(began)/10, time.Millisecond), longestPause)):
		}
	}
}

// Current returns the current process, or nil before the first start.
func (s *Server) Current() *Child { return s.current.Load() }

// PID returns the id of the current process.
func (s *Server) PID() int { return s.Current().PID() }

// Done is closed when the current process has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.Current().Done() }

// Outcome describes in one line how the current process ended. Call it after Done.
func (s *Server) Outcome() string { return s.Current().Outcome() }

// Stop asks the server to end, which keeps its data and lets requests in flight finish, and waits for the end. A server
// that was never started is left alone.
func (s *Server) Stop() {
	if process := s.Current(); process != nil {
		process.Stop(cmp.Or(s.StopSignal, syscall.SIGTERM), stopWithin)
	}
}

// Kill ends the server at once (SIGKILL), like a crash.
func (s *Server) Kill() { s.Current().Kill() }

// Pause stops the server (SIGSTOP): connections stay open without an answer.
func (s *Server) Pause() error { return s.Current().Pause() }

// Resume continues a paused server.
func (s *Server) Resume() { s.Current().Resume() }

// written returns what the child has written to its log, up to the last 64 KiB.
func (c *Child) written() string {
	file, err := os.Open(c.log)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	const most = 64 << 10
	begin := c.from
	if info, err := file.Stat(); err == nil {
		begin = max(begin, info.Size()-most)
	}
	content, err := io.ReadAll(io.NewSectionReader(file, begin, most))
	if err != nil {
		return ""
	}
	return string(content)
}

// failure matches words that name a cause.
var failure = regexp.MustCompile(
	`(?i)\b(error|fatal|panic|failed|failure|denied|refused|cannot|could not|can't|unable|no space left)\b`,
)

// namesFailure reports whether a line names a failure of the program. A line of a service's log does so by
// its level; a line about a request concerns that request only.
func namesFailure(line string) bool {
	if strings.HasPrefix(line, "{") {
		return strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, `"msg":"request"`)
	}
	return failure.MatchString(line)
}

// lastLines is how many lines of the output concern the end. An earlier failure did not end the program.
const lastLines = 20

// Cause returns the line of a failed program's output that says why it failed: the first of the last lines
// that names a failure. The lines after it are often about cleaning up. If there is no such line, it returns
// the last one.
func Cause(output string) string {
	if line := failureIn(output); line != "" {
		return line
	}
	return lastLine(output)
}

// failureIn returns the first of the last lines that names a failure, or "".
func failureIn(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range lines[max(0, len(lines)-lastLines):] {
		if namesFailure(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func lastLine(output string) string {
	text := strings.TrimSpace(output)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// childrenOf lists the processes whose parent is pid. PostgreSQL's backends leave their parent's process
// group, so a signal to the group would miss them.
func childrenOf(pid int) []int {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var children []int
	for _, path := range entries {
		fields := statFields(path)
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// WorkingIn lists the running processes whose working directory is dir.
func WorkingIn(dir string) []int {
	there, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil
	}
	var found []int
	for _, link := range links {
		place, err := os.Stat(link)
		if err != nil || !os.SameFile(place, there) {
			continue // gone, or not accessible
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// WaitGone waits until no running process has this id, and reports whether that happened before ctx ended.
func WaitGone(ctx context.Context, pid int) bool {
	for alive(pid) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

// alive reports false for a dead process that its parent has not reaped: in a container that may never
// happen.
func alive(pid int) bool {
	fields := statFields("/proc/" + strconv.Itoa(pid) + "/stat")
	return len(fields) > 0 && string(fields[0]) != "Z"
}

// statFields returns the fields after the name in a process's stat: state, parent, … The name may contain
// anything, so the fields start after its closing bracket (proc(5)). It returns nil if there is no such
// process.
func statFields(path string) [][]byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
}
