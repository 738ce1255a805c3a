package admin

// CommandsOf and ACLOf let tests compare every role and version with docs/acl.md.
var CommandsOf, ACLOf = commandsOf, aclOf
