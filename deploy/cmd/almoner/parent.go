package main

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel send us SIGTERM when make, which started us, is gone, so that killing make with
// SIGKILL leaves nothing either. Started by hand we outlive the shell as any program does.
func dieWithParent() error {
	if os.Getenv("MAKELEVEL") == "" {
		return nil
	}
	// The kernel keeps this wish with the thread; the main thread lives as long as the program.
	runtime.LockOSThread()
	if _, _, code := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0); code != 0 {
		return code
	}
	if os.Getppid() == 1 {
		return errors.New("make is gone")
	}
	return nil
}
