package localstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	lowestPort = 10000 // lower ports are well known
	portTries  = 100
	startTries = 3
)

// reserved maps each port that this process has reserved to an abstract Unix socket (unix(7)). In a network namespace,
// the kernel permits one socket per name and removes it when its process ends, so no two processes get the same port
// before their servers listen.
var reserved sync.Map

var errPortTaken = errors.New("the port was taken by another program")

// FreePort returns a port that is free at 127.0.0.1 and ::1. Until this process ends, no other call returns it, in any
// process of the network namespace, unless nearly all ports are for outgoing connections. It is outside the kernel's
// range for outgoing connections: a port in that range may be taken at any moment, and a client that keeps retrying a
// stopped server may even connect to itself, after which the server cannot start again.
func FreePort() (int, error) {
	end := outgoingPorts()
	if end < lowestPort+1000 {
		return kernelsChoice() // nearly all ports are for outgoing connections
	}
	for range portTries {
		port := lowestPort + rand.IntN(end-lowestPort)
		free, err := reserve(port)
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		if free {
			return port, nil
		}
	}
	return 0, errors.New("find a free port: there is none")
}

// reservation is the name of the socket that reserves a port. A name that begins with @ is abstract.
func reservation(port int) string { return "@almoner-port-" + strconv.Itoa(port) }

// reserve reserves a port until this process ends. It returns false if the port is in use or already reserved.
func reserve(port int) (bool, error) {
	socket, err := net.Listen("unix", reservation(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !isFree(port) {
		return false, socket.Close()
	}
	reserved.Store(port, socket)
	return true, nil
}

// outgoingPorts returns the first port of the kernel's range for outgoing connections (ip(7)).
func outgoingPorts() int {
	begin := 32768 // the default
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(content), &begin)
	}
	return begin
}

func isFree(port int) bool {
	for _, host := range []string{"127.0.0.1", "::1"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
		} else if host == "127.0.0.1" || errors.Is(err, syscall.EADDRINUSE) {
			return false
		} // else there is no IPv6
	}
	return true
}

func kernelsChoice() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// onFreePort calls start with free ports until one was not taken by another program in the meantime.
func onFreePort(start func(port int) error) error {
	for try := 1; ; try++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
	}
}

// whyNotStarted returns errPortTaken in place of the error of a server whose log says so: not in the last line.
func whyNotStarted(name, log string, err error) error {
	lines := readLines(log)
	if strings.Contains(strings.Join(lines[max(0, len(lines)-6):], "\n"), "Address already in use") {
		return fmt.Errorf("%s: %w", name, errPortTaken)
	}
	return err
}
