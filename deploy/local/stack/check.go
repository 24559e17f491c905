package stack

// Check returns an error that would prevent Start and can be detected without starting anything: another stack in the
// same directory, a directory that is not writable, or a port in use.
func Check(options Options) error {
	h, err := openHome(options.Home)
	if err != nil {
		return err
	}
	defer h.release()
	_, err = choosePorts(options.Port)
	return err
}
