// Package child answers: how does a program of ours run another one that never outlives it?
//
// A child gets a process group of its own, so that Ctrl-C in a terminal reaches the program alone and the program
// decides in which order its children end. Should the program be killed, the kernel ends the child (prctl
// PR_SET_PDEATHSIG): this package needs Linux.
package child

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Spec says what to run and how.
type Spec struct {
	Name string // how messages call it
	Path string
	Args []string
	Dir  string
	Env  []string // the whole environment
	Log  string   // the file that standard output and error are appended to; "" for nowhere
	User *syscall.Credential
	// OnParentDeath is what the kernel sends when this program is gone; the zero value means SIGKILL.
	OnParentDeath syscall.Signal
}

// A Child is a running process.
type Child struct {
	name string
	log  string
	from int64 // where this child's part of the log begins
	pid  int
	done chan struct{}
	err  error // how it ended; read after done is closed
}

// Start runs spec. The child is reaped whatever happens; Done tells when.
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
		// The kernel counts the death of the thread that forked as the death of the parent, so this thread is kept
		// for as long as the child lives.
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
	signal := s.OnParentDeath
	if signal == 0 {
		signal = syscall.SIGKILL
	}
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

// Run runs spec to its end. It is killed when ctx ends. A failure quotes the log's first line that names a cause.
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

// PID is the process id.
func (c *Child) PID() int { return c.pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Outcome says in one line how the child ended and why: by the Cause in its log, or, if it ended without an error, by
// the last line. Call it after Done.
func (c *Child) Outcome() string {
	how := "ended"
	if c.err != nil {
		how = "ended with " + c.err.Error()
	}
	text := c.written()
	why := lastLine(text)
	if c.err != nil {
		why = Cause(text)
	}
	if why != "" {
		how += ": " + why
	}
	return c.name + " " + how
}

// Signal sends a signal to the child alone.
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

// Stop asks the child to end by the polite signal and kills it when its patience is over. It returns once it is gone.
func (c *Child) Stop(polite syscall.Signal, patience time.Duration) {
	c.Resume() // a stopped process would not hear the signal
	_ = c.Signal(polite)
	select {
	case <-c.done:
	case <-time.After(patience):
		c.Kill()
	}
}

// Kill ends the child and its own children at once (SIGKILL) and returns when the child is gone.
func (c *Child) Kill() {
	family := append([]int{c.pid}, childrenOf(c.pid)...)
	if c.Signal(syscall.SIGKILL) == nil {
		for _, pid := range family[1:] {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	<-c.done
}

// Pause stops the child and its own children in their tracks (SIGSTOP); connections to them stay open and silent.
func (c *Child) Pause() error {
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for _, pid := range childrenOf(c.pid) { // after the parent was stopped: no new ones can appear
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return nil
}

// Resume lets a paused child go on. It is harmless for one that runs or has ended.
func (c *Child) Resume() {
	children := childrenOf(c.pid)
	if c.Signal(syscall.SIGCONT) != nil {
		return
	}
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// written returns what the child has written to its log, or the end of it.
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
