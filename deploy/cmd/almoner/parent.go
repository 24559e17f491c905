package main

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel send SIGTERM to this process when make, its parent, ends, so that killing make with
// SIGKILL leaves no process either. Started by hand, the process outlives the shell as any program does.
func dieWithParent() error {
	if os.Getenv("MAKELEVEL") == "" {
		return nil
	}
	// The kernel stores this setting with the thread; the main thread lives as long as the program.
	runtime.LockOSThread()
	signal := uintptr(syscall.SIGTERM)
	_, _, code := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, signal, 0)
	if code != 0 {
		return code
	}
	if os.Getppid() == 1 {
		return errors.New("make has ended")
	}
	return nil
}
