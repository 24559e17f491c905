// Package secretfile reads secrets again from the files that NAME_FILE settings name, while the process runs.
//
// Such a file is rewritten by a Vault agent, replaced through a symbolic link by a CSI driver or a kubelet, or replaced
// by an administrator. Its rules:
//
//  1. The password of a store is read for each new connection. Existing connections stay open.
//  2. Keys are read every two seconds, and used when two consecutive readings are equal, so that a file that is being
//     rewritten is not used.
//  3. A file that is missing, empty or invalid changes nothing: the last valid value stays in use. The log has one line
//     when this begins and one when it ends. No line quotes the value or the path.
//  4. Only changes of the user and password in a store's URL take effect. A change of the server takes effect at the
//     next start: otherwise a process would use two servers at a time.
//
// The app packages of both services use it.
package secretfile
